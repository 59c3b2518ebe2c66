"""What runs on a plain CPU: the built-in plugin, registered like anyone's through an entry point."""
