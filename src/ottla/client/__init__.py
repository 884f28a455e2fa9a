"""The client: producer, consumer and admin over shared connections. `core/` decides, the rest carries out."""
