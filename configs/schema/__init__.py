"""The schema of the YAML configuration, as pydantic models."""
