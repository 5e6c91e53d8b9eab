"""The store for engines that keep ordered keys: one set of verbs over a small port."""
