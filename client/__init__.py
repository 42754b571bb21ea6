"""Put records on the queue and take results off it."""
