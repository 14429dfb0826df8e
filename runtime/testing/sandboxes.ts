import type { SandboxSettings } from '../runtime.ts';

/** Sandboxes of a test's runtime: few tenants, small guests. */
export const TEST_SANDBOXES: SandboxSettings = { most: 8, spares: 1, idleMs: 30_000, memoryMb: 1024, poolMb: 32 };
