"""The YAML spec: model, loading with positions, merging, resolution, schema."""
