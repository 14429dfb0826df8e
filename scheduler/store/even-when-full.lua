-- A Redis at its memory limit refuses a script's first write if that may take memory, but does not stop a script that has already written.
-- So scripts that free memory or keep a runtime alive begin with a write that takes none.
redis.call('DEL', KEYS[1] .. ':never-there')
