"""Sandboxes in processes, kills, full disks, interrupts."""
