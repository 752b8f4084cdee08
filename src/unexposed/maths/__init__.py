"""The paper as code: losses, exposure, bi-level optimisation. Engines are held to it."""
