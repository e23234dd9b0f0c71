"""The processes of a measurement: what is measured, and what it is measured against. Each is run with `-m`."""
