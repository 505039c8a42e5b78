"""What `judgelm doctor` finds out: packages, devices, and how close an engine comes to what the machine can do."""
