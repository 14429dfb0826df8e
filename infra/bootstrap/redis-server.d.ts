/** Finds redis-server or installs it with the system's package manager. Nothing to do when REDIS_URL names a server. */
export function ensureRedisServer(): void;

/** What to say when redis-server is not on the PATH, with the command that installs it here; null when it is. */
export function missingRedisServer(): string | null;
