import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Tests of one machine share what they build: a component is the same whenever its source and the contract are. */
export const TEST_COMPONENTS = join(tmpdir(), 'pie-test-components');
/** Artifacts of the test components, which are never removed. */
export const TEST_ARTIFACTS = join(TEST_COMPONENTS, 'artifacts');
