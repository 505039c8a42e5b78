"""The checks of `judgelm doctor`: packages, devices, engine speed, training plans and prompt injection."""
