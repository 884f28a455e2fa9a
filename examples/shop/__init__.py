"""A shop's orders and its couriers' positions, counted and summed per city and minute while they come."""
