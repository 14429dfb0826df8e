import { after, before, describe } from 'node:test';
import { describeAccess } from './access.ts';
import { describeFiles } from './files.ts';
import { describeFunctions } from './functions.ts';
import { ECHO_SCHEMA, Harness, type Target } from './harness.ts';
import { describeInvocations } from './invocations.ts';
import { describeInvoking } from './invoking.ts';
import { describeNames } from './names.ts';
import { describeOperations } from './operations.ts';
import { describeQuotas } from './quotas.ts';
import { describeReleases } from './releases.ts';
import { describeSchedules } from './schedules.ts';
import { describeSchemas } from './schemas.ts';
import { describeStreams } from './streams.ts';
import { describeTenants } from './tenants.ts';
import { describeWaiting } from './waiting.ts';

/** Limits that the suite expects of its target; small, so that exceeding them is cheap. */
export const SUITE_LIMITS = { inputBytes: 2000, componentBytes: 5000, fileBytes: 3000 };
/** The origin whose pages may call the target. */
export const SUITE_ORIGIN = 'https://app.example.com';
/** Heartbeat of a Node gateway under test: the longest time that a stream may outlive its key. */
export const SUITE_HEARTBEAT_MS = 200;

/** Tests that every gateway must pass, on Node and in workerd. */
export function describeHttp(name: string, start: () => Promise<Target>): void {
  describe(name, () => {
    let harness: Harness;
    const get = () => harness;
    before(async () => {
      harness = new Harness(await start());
      await harness.platform.register({ name: 'echo', input: ECHO_SCHEMA });
    });
    after(() => harness.target.stop());
    describeAccess(get);
    describeFunctions(get);
    describeReleases(get);
    describeInvoking(get);
    describeWaiting(get);
    describeInvocations(get);
    describeStreams(get);
    describeOperations(get);
    describeFiles(get);
    describeTenants(get);
    describeQuotas(get);
    describeSchedules(get);
    describeSchemas(get);
    // Last, because this suite removes and suspends all objects with the names that it tries.
    describeNames(get);
  });
}
