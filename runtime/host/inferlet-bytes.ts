import { InferletShare, Shares } from '#scheduler/policies/shares.ts';

/** Maximum bytes that the inferlets of a runtime hold in its process. Tenants share them. */
const MAX_BYTES = 2 ** 30;
/** Bytes of each kind that every inferlet may hold, even when the shares are taken. */
const LEAST_BYTES = 64 * 1024;

/** The bytes that all inferlets of a runtime hold in its process: what calls carry, and results that no inferlet has read. */
export const inferletBytes = (maxBytes = MAX_BYTES): Shares => new Shares(maxBytes);

/** One inferlet's bytes of one kind. */
export const takenBytes = (shares: Shares, tenant: string): InferletShare =>
  new InferletShare(shares, tenant, LEAST_BYTES);
