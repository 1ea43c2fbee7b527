"""The intervention test: what-ifs predicted from one recording, then run and timed."""
