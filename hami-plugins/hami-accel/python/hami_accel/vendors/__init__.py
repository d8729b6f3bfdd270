"""Devices of vendors, written against their public Python modules, which are imported when a device is created."""
