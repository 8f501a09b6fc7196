"""Where Q/DQ pairs go, and why."""
