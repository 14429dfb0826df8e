/** Finds redis-server or installs it with the system's package manager. Does nothing when REDIS_URL names a server. */
export function ensureRedisServer(): void;

/** Error message with the install command for this machine when redis-server is not on the PATH; null when it is. */
export function missingRedisServer(): string | null;
