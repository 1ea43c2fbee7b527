"""What a plan lets ranks exchange: kinds, groups, bytes, beside what, and who waits for it."""
