"""Self- and family-bias of judges against human scores (Play Favorites)."""
