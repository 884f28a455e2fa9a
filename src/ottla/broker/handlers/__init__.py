"""One function per API; `dispatch.ROUTES` names them."""
