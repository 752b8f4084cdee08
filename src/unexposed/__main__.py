"""`python -m unexposed` is the command `unexposed`."""

from unexposed.cli import main

main()
