/** What tenants and keys may look like; nothing here touches Redis. */

/** It stands in URLs, commands and names of keys in Redis. */
export const TENANT_NAME = /^[a-z][a-z0-9-]{0,62}$/;
/** For people, to tell keys apart. Printable, so that it can stand in a terminal and a table. */
export const KEY_NAME = /^[^\p{C}\p{Zl}\p{Zp}]{1,64}$/u;
/** Names a key without revealing it: the first 12 digits of its hash. */
export const KEY_ID = /^key_[0-9a-f]{12}$/;

/** Part of a tenant in the fair share between tenants that wait. */
export const WEIGHT = { least: 1, most: 1000, usual: 100 } as const;

/** Tenants of one installation. */
export const MAX_TENANTS = 10_000;
/** Keys of one tenant, those in their grace period included. */
export const MAX_KEYS = 100;

const DAY_MS = 86_400_000;
/** A key that ends sooner is none to rely on: the last one to administer a tenant lasts longer. */
export const LASTING_MS = DAY_MS;
/** A rotated key works for at most so long beside the one that replaces it. */
export const MAX_GRACE_MS = 30 * DAY_MS;
/** A key that has an end has it within so long. */
export const MAX_LIFETIME_MS = 3660 * DAY_MS;
/** An expired key is still listed, and told from an unknown one, for so long. */
export const EXPIRED_KEPT_MS = 7 * DAY_MS;
