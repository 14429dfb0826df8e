import {
  aliasNameFault,
  FUNCTION_NAME,
  heaviest,
  LIVE,
  MIN_VERSION_PREFIX,
  messageFault,
  sharesFault,
} from '#scheduler/functions/aliases.ts';
import { differences } from '#scheduler/functions/differences.ts';
import type { DeployedFunction } from '#scheduler/functions/functions.ts';
import type { AliasOutcome, RollbackOutcome, RollbackPlan } from '#scheduler/functions/releases.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import type { Call, FunctionManifest, FunctionVersion } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import type {
  Alias,
  DeployPlan,
  DeployTarget,
  Draining,
  Releases,
  Rollback,
  RollbackRequest,
  SetAlias,
  Share,
} from '../app/resources/releases.ts';
import type { NodeFunctions } from './functions.ts';
import { toAlias } from './present.ts';
import { requireOwn } from './shared-functions.ts';
import { translating } from './store-errors.ts';

/** Aliases, rollbacks and removals of versions, in Redis. */
export class NodeReleases implements Releases {
  readonly #scheduler: Scheduler;
  readonly #functions: NodeFunctions;

  constructor(scheduler: Scheduler, functions: NodeFunctions) {
    this.#scheduler = scheduler;
    this.#functions = functions;
  }

  aliases({ principal }: Call, name: string): Promise<readonly Alias[]> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return [];
      return (await this.#scheduler.releases.aliases(principal.tenant, name)).map(toAlias);
    });
  }

  history({ principal }: Call, name: string, alias: string): Promise<readonly Alias[]> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name) || aliasNameFault(alias) !== null) return [];
      const states = await this.#scheduler.releases.history(principal.tenant, name, alias);
      return states.map((state) => toAlias({ alias, ...state }));
    });
  }

  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias> {
    return translating(async () => {
      throwFault(aliasNameFault(alias) ?? messageFault(change.message));
      requireOwn(call.principal, name);
      const { tenant, keyId } = call.principal;
      const deployedFunction = await this.#requireFunction(tenant, name);
      const shares = change.shares.map(({ version, weight }, index) => ({
        version: versionIn(deployedFunction, version, `/shares/${index}/version`),
        weight,
      }));
      throwFault(sharesFault(shares));
      const { message, ifRevision } = change;
      const outcome = await this.#scheduler.releases.set(tenant, name, alias, {
        shares,
        by: keyId,
        message,
        ifRevision,
      });
      if (!outcome.ok) throw refusal(name, alias, outcome);
      await this.#audit(call, 'alias.set', `${name}@${alias}`, { shares, message });
      return toAlias(outcome.alias);
    });
  }

  removeAlias(call: Call, name: string, alias: string): Promise<boolean> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name) || aliasNameFault(alias) !== null) return false;
      requireOwn(call.principal, name);
      if (alias === LIVE) {
        throw new GatewayError(
          'conflict',
          `\`${LIVE}\` cannot be removed: the function's name without an alias refers to it.`,
          {
            hint: `Remove the function (\`pie remove ${name}\`), or point \`${LIVE}\` at another version.`,
          },
        );
      }
      const removed = await this.#scheduler.releases.remove(call.principal.tenant, name, alias);
      if (removed) await this.#audit(call, 'alias.remove', `${name}@${alias}`, {});
      return removed;
    });
  }

  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback> {
    return translating(async () => {
      const { alias = LIVE, message, ifRevision, dryRun = false } = request;
      throwFault(aliasNameFault(alias) ?? messageFault(message));
      requireOwn(call.principal, name);
      const { tenant, keyId } = call.principal;
      const deployedFunction = await this.#requireFunction(tenant, name);
      const to = request.to === undefined ? undefined : versionIn(deployedFunction, request.to, '/to');
      const rollbackOptions = { by: keyId, to, message, ifRevision };
      const { releases } = this.#scheduler;
      if (dryRun) {
        const planOutcome = await releases.planRollback(tenant, name, alias, rollbackOptions);
        if (!planOutcome.ok) throw refusal(name, alias, planOutcome);
        const { from } = planOutcome.plan;
        // The scheduler's plan, unlike its rollback, does not check that the versions still exist.
        const missingVersion = planOutcome.plan.to.find(
          ({ version }) => !deployedFunction.versions.some((known) => known.version === version),
        );
        if (missingVersion !== undefined)
          throw refusal(name, alias, { ok: false, reason: 'unknown-version', version: missingVersion.version });
        return {
          ...(await this.#planWithChanges(deployedFunction, planOutcome.plan)),
          alias: toAlias({ alias, ...from }),
          dryRun,
        };
      }
      const outcome = await releases.rollback(tenant, name, alias, rollbackOptions);
      if (!outcome.ok) throw refusal(name, alias, outcome);
      await this.#audit(call, 'alias.rollback', `${name}@${alias}`, { to: outcome.plan.to, message });
      return {
        ...(await this.#planWithChanges(deployedFunction, outcome.plan)),
        alias: toAlias(outcome.alias),
        dryRun,
      };
    });
  }

  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan> {
    return this.#functions.plan(call, manifest, component, target);
  }

  removeVersion(call: Call, name: string, reference: string, now: boolean): Promise<readonly Draining[] | null> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return null;
      requireOwn(call.principal, name);
      const deployedFunction = await this.#scheduler.functions.read(call.principal.tenant, name);
      const version = deployedFunction === null ? null : versionOf(deployedFunction, reference, 'version');
      if (version === null) return null;
      const { tenant, keyId } = call.principal;
      const outcome = await this.#scheduler.removals.removeVersion(tenant, name, version, now, { actor: keyId });
      if (outcome === null) return null;
      if ('servedBy' in outcome) {
        const names = outcome.servedBy.map((alias) => `\`${alias}\``).join(', ');
        throw new GatewayError('conflict', `The version ${version} of ${name} is served by ${names}.`, {
          hint: `Point the alias elsewhere first: \`pie alias set ${name} ${outcome.servedBy[0] ?? LIVE} VERSION\`, or \`pie rollback ${name}\`.`,
        });
      }
      // The outcome has all draining versions of the function, those of earlier removals included.
      return outcome.draining.filter((draining) => draining.version === version);
    });
  }

  draining({ principal }: Call, name: string): Promise<readonly Draining[]> {
    return translating(async () =>
      FUNCTION_NAME.test(name) ? this.#scheduler.removals.draining(principal.tenant, name) : [],
    );
  }

  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null> {
    return translating(async () => {
      if (!FUNCTION_NAME.test(name)) return null;
      // A quarantine holds for one tenant. So each tenant may lift its own quarantine of a function that all tenants
      // share: no `requireOwn` here.
      const foundVersions = await this.#scheduler.functions.visibleVersions(call.principal.tenant, name);
      if (foundVersions.length === 0) return null;
      const lifted = await this.#scheduler.quarantine.lift(foundVersions.map(({ version }) => version));
      const versions = lifted.map(({ version }) => version);
      if (versions.length > 0) await this.#audit(call, 'quarantine.lift', name, { versions });
      return versions;
    });
  }

  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null> {
    return this.#functions.resolve(call, name, reference);
  }

  async #requireFunction(tenant: string, name: string): Promise<DeployedFunction> {
    const deployedFunction = FUNCTION_NAME.test(name) ? await this.#scheduler.functions.read(tenant, name) : null;
    if (deployedFunction === null) throw new GatewayError('unknown-function', `There is no function "${name}".`);
    return deployedFunction;
  }

  /** The shares before and after a rollback, and the changes between the versions with the largest shares. */
  async #planWithChanges(
    deployedFunction: DeployedFunction,
    { from, to }: RollbackPlan,
  ): Promise<Pick<Rollback, 'from' | 'to' | 'changes'>> {
    const { environments, functions } = this.#scheduler;
    // Opens the sealed values of the environment, so that a changed value shows as a change.
    const heaviestWithValues = async (shares: readonly Share[]) => {
      const version = heaviest(shares);
      const heaviestVersion =
        version === undefined
          ? null
          : await functions.runnable(deployedFunction.tenant, deployedFunction.name, version);
      return heaviestVersion && environments.withOpenedValues(heaviestVersion);
    };
    const [before, after] = await Promise.all([heaviestWithValues(from.shares), heaviestWithValues(to)]);
    return { from: from.shares, to, changes: after === null ? [] : differences(before, after) };
  }

  #audit(
    { principal }: Call,
    act: 'alias.set' | 'alias.remove' | 'alias.rollback' | 'quarantine.lift',
    subject: string,
    details: Readonly<Record<string, unknown>>,
  ) {
    return this.#scheduler.audit.record(principal.keyId, principal.tenant, act, subject, details);
  }
}

/** Like {@link versionOf}, but throws when the reference names no version. */
function versionIn(deployedFunction: DeployedFunction, reference: string, field: string): string {
  const version = versionOf(deployedFunction, reference, field);
  if (version !== null) return version;
  const message = `"${reference.slice(0, 100)}" does not name one version of ${deployedFunction.name}.`;
  throw new GatewayError('invalid-alias', message, { field, hint: versionsHint(deployedFunction.name) });
}

/**
 * Returns the version that `reference` names, or null. A reference is a full version, an alias or tag that serves one
 * version only, or the first digits of a version. Throws when several versions begin with these digits.
 */
function versionOf({ name, versions, aliases }: DeployedFunction, reference: string, field: string): string | null {
  if (versions.some(({ version }) => version === reference)) return reference;
  const shares = aliases.find(({ alias }) => alias === reference)?.shares ?? [];
  if (shares.length === 1 && shares[0] !== undefined) return shares[0].version;
  const matches =
    reference.length < MIN_VERSION_PREFIX ? [] : versions.filter(({ version }) => version.startsWith(reference));
  if (matches.length <= 1) return matches[0]?.version ?? null;
  const message = `${matches.length} versions of ${name} begin with "${reference}".`;
  throw new GatewayError('invalid-alias', message, { field, hint: versionsHint(name) });
}

function versionsHint(name: string): string {
  return `\`pie versions ${name}\` lists them; the first ${MIN_VERSION_PREFIX} digits are enough when they are unique.`;
}

function throwFault(fault: { readonly field: string; readonly message: string } | null): void {
  if (fault === null) return;
  throw new GatewayError('invalid-alias', `${fault.field.replace(/^\//, '')} ${fault.message}.`, {
    field: fault.field,
  });
}

type RefusedOutcome = Extract<AliasOutcome, { ok: false }> | Extract<RollbackOutcome, { ok: false }>;

function refusal(name: string, alias: string, refused: RefusedOutcome): GatewayError {
  switch (refused.reason) {
    case 'unknown-function':
      return new GatewayError('unknown-function', `There is no function "${name}".`);
    case 'no-alias':
      return new GatewayError('unknown-alias', `${name} has no alias "${alias}".`);
    case 'unknown-version':
      return new GatewayError('conflict', `The version ${refused.version} of ${name} no longer exists.`, {
        hint: `\`pie versions ${name}\` lists the existing ones; name one with --to.`,
      });
    case 'changed':
      return new GatewayError(
        'conflict',
        `The alias "${alias}" has changed in the meantime: its revision is ${refused.revision}.`,
        {
          hint: 'Check which version it serves, then try again.',
        },
      );
    case 'too-many-aliases':
      return new GatewayError('invalid-alias', `${name} has the maximum number of aliases and tags.`, {
        field: 'alias',
        hint: `Remove some: \`pie alias remove ${name} ALIAS\`.`,
      });
    case 'tag-of-several':
      return new GatewayError('invalid-alias', `"${alias}" is a tag, which names exactly one version.`, {
        field: '/shares',
        hint: 'Name one version, or use an alias, which may share calls between several.',
      });
    case 'nothing-before':
      return new GatewayError(
        'conflict',
        `There is no record of an earlier version that "${alias}" of ${name} served.`,
        {
          hint: `Name a version: \`pie rollback ${name} --to VERSION\`; \`pie versions ${name}\` lists them.`,
        },
      );
    case 'serves-it':
      return new GatewayError('conflict', `"${alias}" of ${name} already serves this version.`, {
        hint: `\`pie alias list ${name}\` shows what each alias serves.`,
      });
  }
}
