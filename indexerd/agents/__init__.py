"""One module per agent: where its sessions are, how a line is skimmed and read. Pure.

An adapter is a module with NAME, READS, WRITES and the functions `skim`, `skim_oversize`,
`read`, `preview` and `resume_command`; `pi` shows their contracts.
"""

from indexerd.agents import pi

ADAPTERS = {pi.NAME: pi}
