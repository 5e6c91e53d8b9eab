"""etcd engine."""
