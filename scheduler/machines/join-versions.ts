import type { Versions } from '../links/versions.ts';

/**
 * Versions of the exchange by which a machine joins. When you add a version, keep the one before it. From version 2 on, the machine asks which
 * versions the gateway speaks, and each message is bound to its version.
 */
export const JOIN_VERSIONS: Versions = { oldest: 1, newest: 2 };

/** Version of a side that states none. */
export const SILENT_JOIN_VERSION = 1;
