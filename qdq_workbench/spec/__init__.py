"""What the user wants: grids, specifications."""
