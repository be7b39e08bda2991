"""What is installed into agents and into the service manager."""
