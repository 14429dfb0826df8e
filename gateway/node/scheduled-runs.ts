import { randomBytes, randomUUID } from 'node:crypto';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import type { LastTime, Schedule } from '#scheduler/schedules/rules.ts';
import type { Call, ControlPlane } from '../app/control.ts';
import { GatewayError, unknownTenant } from '../app/errors/gateway-error.ts';
import { InputChecker } from '../app/validation/input.ts';

/** Time limit on the submission of one invocation. */
const DEADLINE_MS = 10_000;
/** Codes of errors that another try may overcome. The function of `scheduledRuns` throws them, and the schedule worker then tries again. */
const TRANSIENT_CODES: readonly string[] = ['store-unavailable', 'gateway-busy', 'internal'];

/**
 * Returns the function `ScheduleWorkerOptions.run`, which makes one invocation for a schedule. The invocation has the quotas and the check of the
 * input of any other invocation of the tenant. The function resolves to the invocation or its refusal, and throws only transient errors.
 */
export function scheduledRuns(
  control: Pick<ControlPlane, 'invoke'>,
  tenants: Scheduler['tenants'],
): (schedule: Schedule, key: string) => Promise<Omit<LastTime, 'at'>> {
  const inputs = new InputChecker();
  return async ({ tenant, name, function: fn, reference, input }, idempotencyKey) => {
    try {
      const tenantRecord = await tenants.get(tenant);
      if (tenantRecord === null) throw unknownTenant(tenant);
      if (tenantRecord.suspended) throw suspendedTenant(tenant);
      const invoked = await control.invoke(callOf(tenant), {
        function: { name: fn, ...(reference !== '' && { version: reference }) },
        check: (version) => inputs.check(version, jsonValue(input)),
        input,
        // With `join`, a repeated firing gets the invocation of the first firing, even while that invocation runs.
        idempotencyKey,
        join: true,
        schedule: name,
      });
      if (invoked === null) throw unknownFunction(`${fn}@${reference || 'live'}`, name);
      return { invocation: invoked.id };
    } catch (caught) {
      const error = GatewayError.from(caught);
      if (TRANSIENT_CODES.includes(error.code)) throw caught;
      return { error: { code: error.code, message: error.message } };
    }
  };
}

// A schedule keeps the code and the message of an error, but not its hint: these messages name the remedy.

function suspendedTenant(tenant: string): GatewayError {
  const message = `The tenant "${tenant}" is suspended. An operator can resume it: \`pie tenants resume ${tenant}\`.`;
  return new GatewayError('tenant-suspended', message);
}

function unknownFunction(reference: string, schedule: string): GatewayError {
  const remedy = `Deploy it, or remove the schedule: \`pie schedule remove ${schedule}\`.`;
  return new GatewayError('unknown-function', `There is no function "${reference}". ${remedy}`);
}

/** The context of a call that no request has made. */
function callOf(tenant: string): Call {
  return {
    principal: { tenant, keyId: 'schedule', scopes: ['invoke'] },
    requestId: randomUUID(),
    traceparent: `00-${randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}-00`,
    signal: AbortSignal.timeout(DEADLINE_MS),
  };
}
