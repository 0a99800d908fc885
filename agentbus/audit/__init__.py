"""What an auditor may ask of a journal's events, one question a room. Pure: no files, no clock, nothing printed."""
