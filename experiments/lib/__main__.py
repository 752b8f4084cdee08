"""`unexposed` with the kinds and inputs that only the paper's experiments need.

python experiments/lib run experiments/*/*.toml
python experiments/lib tune experiments/worlds/worlds.toml
"""

import timing  # noqa: F401
import trend  # noqa: F401
import world_inputs  # noqa: F401
from unexposed.cli import main

if __name__ == "__main__":
    main()
