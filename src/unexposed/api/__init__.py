"""The functions of `import unexposed` that take names, files or objects, and give frames."""
