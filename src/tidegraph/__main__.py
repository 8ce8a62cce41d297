"""`python -m tidegraph`, which is also what `torchrun -m tidegraph` starts in every process."""

from tidegraph.cli import main

if __name__ == "__main__":
    main(prog_name="tidegraph")
