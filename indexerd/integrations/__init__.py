"""Install indexerd into agents and the service manager."""
