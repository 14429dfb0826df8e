import { FUNCTION_NAME, heaviest, LIVE } from '#scheduler/functions/aliases.ts';
import { differences } from '#scheduler/functions/differences.ts';
import { ownersFor } from '#scheduler/functions/functions.ts';
import { grantsInWords } from '#scheduler/functions/grants-text.ts';
import { type Manifest, parseManifest } from '#scheduler/functions/manifest.ts';
import type { FunctionVersion as StoredVersion } from '#scheduler/functions/types.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { withoutValues } from '#scheduler/secrets/rules.ts';
import type {
  Call,
  Deployed,
  Deployment,
  FunctionManifest,
  FunctionReference,
  FunctionVersion,
} from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { LARGE_BYTES } from '../app/http/answer.ts';
import type { DeployPlan, DeployTarget, Draining } from '../app/resources/releases.ts';
import { toAlias, toFunctionVersion, toReport, toVersionAliases } from './present.ts';
import { requireOwn } from './shared-functions.ts';
import { translating } from './store-errors.ts';

/** Lists, deploys and removes functions in Redis. */
export class NodeFunctions {
  readonly #scheduler: Scheduler;
  readonly #limits: InvocationLimits;

  /** @param limits defaults for each limit that a function's manifest does not set */
  constructor(scheduler: Scheduler, limits: InvocationLimits) {
    this.#scheduler = scheduler;
    this.#limits = limits;
  }

  list(call: Call): Promise<readonly FunctionVersion[]> {
    return translating(async () => {
      const { principal } = call;
      await this.#holdRecords(call);
      const visibleFunctions = await this.#scheduler.functions.visible(principal.tenant);
      const quarantinedSince = await this.#scheduler.quarantine.quarantineTimes(
        visibleFunctions.map(({ version }) => version),
      );
      return visibleFunctions
        .map(({ version, live }, i) => ({
          ...toFunctionVersion(version),
          live,
          ...quarantineMember(quarantinedSince[i]),
        }))
        .sort((a, b) => (a.name < b.name ? -1 : 1));
    });
  }

  find({ principal }: Call, { name, version }: FunctionReference): Promise<FunctionVersion | null> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return null;
      return shownVersion(await this.#scheduler.functions.find(principal.tenant, name, version));
    });
  }

  /** The version that an invocation of this reference would run. For an alias of several versions, picks one at random by the shares. */
  resolve({ principal }: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return null;
      return shownVersion(await this.#scheduler.functions.resolve(principal.tenant, name, reference));
    });
  }

  versions(call: Call, name: string): Promise<readonly FunctionVersion[]> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return [];
      const { principal } = call;
      await this.#holdRecords(call);
      const foundVersions = await this.#scheduler.functions.visibleVersions(principal.tenant, name);
      const quarantinedSince = await this.#scheduler.quarantine.quarantineTimes(
        foundVersions.map(({ version }) => version),
      );
      return foundVersions.map(({ version, aliases }, i) => ({
        ...toFunctionVersion(version),
        aliases: toVersionAliases(version.version, aliases),
        ...quarantineMember(quarantinedSince[i]),
      }));
    });
  }

  /** Counts the records of the tenant's versions in `call.memory` before they are read, if they are large. @throws GatewayError see `Memory.hold` */
  async #holdRecords({ principal, memory }: Call): Promise<void> {
    if (memory === undefined) return;
    const bytes = await this.#scheduler.functions.recordBytes(principal.tenant);
    if (bytes > LARGE_BYTES) memory.hold(bytes);
  }

  deploy(call: Call, { manifest, component, target }: Deployment): Promise<Deployed> {
    return translating(async () => {
      const deployment = this.#deployment(call, manifest, component, target);
      const outcome = await this.#scheduler.deployments.deploy(deployment, { signal: call.signal });
      if (!outcome.ok) throw refusal(outcome);
      const { version, created, alias, warnings } = outcome;
      const { keyId, tenant } = call.principal;
      // Leave out `by`: every audit entry names its actor already.
      const { by: _, ...placementDetails } = deployment.placement;
      await this.#scheduler.audit.record(keyId, tenant, 'function.deploy', `${version.name}@${version.version}`, {
        created,
        ...placementDetails,
      });
      return {
        ...toFunctionVersion(version),
        created,
        alias: alias === null ? null : toAlias({ alias: deployment.placement.alias ?? LIVE, ...alias }),
        report: toReport(version),
        grants: grantsInWords(version.manifest),
        warnings,
      };
    });
  }

  /** Predicts a deploy. See `Releases.plan`. */
  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan> {
    return translating(async () => {
      const deployment = this.#deployment(call, manifest, component, target);
      const { deployments, environments } = this.#scheduler;
      const planOutcome = await deployments.plan(deployment);
      if (!planOutcome.ok) throw refusal(planOutcome);
      const { version, exists, deployed, warnings } = planOutcome;
      const { alias } = deployment.placement;
      const currentShares = deployed?.aliases.find((known) => known.alias === (alias ?? LIVE))?.shares ?? [];
      const heaviestVersion = heaviest(currentShares);
      // `onlyNew` leaves an existing alias where it is when the version exists already.
      const isAliasKept = exists && target.onlyNew === true && currentShares.length > 0;
      const servedVersion =
        heaviestVersion === undefined
          ? null
          : await this.#scheduler.functions.runnable(call.principal.tenant, manifest.name, heaviestVersion);
      return {
        version: version.version,
        exists,
        manifest: withoutValues({ ...version.manifest }),
        componentHash: version.componentHash,
        componentBytes: version.componentBytes,
        alias: isAliasKept ? null : alias,
        from: currentShares,
        changes: differences(
          servedVersion && (await environments.withOpenedValues(servedVersion)),
          await environments.withOpenedValues(version),
        ),
        grants: grantsInWords(version.manifest),
        warnings,
      };
    });
  }

  remove({ principal }: Call, name: string, now: boolean): Promise<readonly Draining[] | null> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return null;
      requireOwn(principal, name);
      const { removals, schedules } = this.#scheduler;
      const { tenant, keyId } = principal;
      const removeSchedules = async () => {
        // A name with a second owner is that of a function which the platform shares. Its schedules stay: once the
        // tenant's own function is removed, they run the platform's function.
        if (ownersFor(tenant, name).length === 1) await schedules.removeOf(tenant, name);
      };
      const drainingVersions = await removals.removeFunction(tenant, name, now, {
        actor: keyId,
        onRemoved: removeSchedules,
      });
      // An earlier call may have removed the function and failed before it removed the schedules.
      if (drainingVersions === null) await removeSchedules();
      return drainingVersions;
    });
  }

  /** The deployment for the scheduler. Throws `invalid-manifest`, and `forbidden` for a function that only operators may change. */
  #deployment({ principal }: Call, rawManifest: FunctionManifest, component: Uint8Array, target: DeployTarget) {
    const { alias = LIVE, tag, message, onlyNew } = target;
    const placement = { alias, tag, message, onlyNew, by: principal.keyId };
    const manifest = checkedManifest(rawManifest);
    requireOwn(principal, manifest.name);
    return { tenant: principal.tenant, manifest, component, defaults: this.#limits, placement };
  }
}

const shownVersion = (stored: StoredVersion | null): FunctionVersion | null => stored && toFunctionVersion(stored);

const quarantineMember = (at: number | null | undefined): Pick<FunctionVersion, 'quarantinedAt'> =>
  at == null ? {} : { quarantinedAt: new Date(at).toISOString() };

function checkedManifest(manifest: FunctionManifest): Manifest {
  const parsed = parseManifest(manifest);
  if (parsed.ok) return parsed.manifest;
  const faults = parsed.errors.map(({ field, message }) => `${field || 'the whole'} ${message}`);
  const [first] = parsed.errors;
  throw new GatewayError('invalid-manifest', `The manifest is not valid: ${faults.join('; ')}.`, {
    field: first === undefined || first.field === '' ? '' : `/${first.field.replaceAll('.', '/')}`,
  });
}

type Refusal = Extract<Awaited<ReturnType<Scheduler['deployments']['deploy']>>, { ok: false }>;

/** Hint for a refused tag: the hint of the code `invalid-alias` itself speaks of aliases. */
const TAG_HINT = 'A tag is a short lower-case name of a version that is not an alias of it, such as `v1.2`.';

function refusal({ code, message, hint, ...details }: Refusal): GatewayError {
  const field = 'field' in details ? details.field : undefined;
  const tagHint = code === 'invalid-alias' && field === 'tag' ? TAG_HINT : undefined;
  return new GatewayError(code, message, { hint: hint ?? tagHint, field });
}
