"""The handlers: one function per API; `dispatch.ROUTES` lists them."""
