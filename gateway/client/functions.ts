import { NO_ALIAS } from '#scheduler/functions/aliases.ts';
import type {
  Alias,
  Deployed,
  DeployPlan,
  DeployTarget,
  Draining,
  FunctionVersion,
  Rollback,
  RollbackRequest,
  SetAlias,
} from '../app/control.ts';
import { type CallOptions, common, type Http, withBody } from './http.ts';

export type { Deployed };

export interface DeployOptions extends CallOptions, DeployTarget {}

/** Functions, their versions, and their aliases. */
export class FunctionsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Deploys a component under the manifest's name. By default the alias `live` then serves the new version. */
  async deploy(
    manifest: { readonly name: string },
    component: Uint8Array<ArrayBuffer>,
    options: DeployOptions = {},
  ): Promise<Deployed> {
    return this.#http.json(deployPath(manifest.name, options), upload(manifest, component, options));
  }

  /** Predicts {@link deploy} without performing it. */
  async planDeploy(
    manifest: { readonly name: string },
    component: Uint8Array<ArrayBuffer>,
    options: DeployOptions = {},
  ): Promise<DeployPlan> {
    return this.#http.json(deployPath(manifest.name, options, true), upload(manifest, component, options));
  }

  /** Lists functions by name, each with the version that its bare name runs. */
  async functions(options: CallOptions = {}): Promise<readonly FunctionVersion[]> {
    return (await this.#http.json<{ functions: FunctionVersion[] }>('/v1/functions', common(options))).functions;
  }

  /**
   * Finds a function by `name`, `name@alias` or `name@version`. For a weighted alias, returns the version with the largest share;
   * with `draw`, picks one at random by the shares, as an invocation would.
   */
  async function(reference: string, options: CallOptions & { readonly draw?: boolean } = {}): Promise<FunctionVersion> {
    return this.#http.json(`${functionPath(reference)}${options.draw === true ? '?draw=true' : ''}`, common(options));
  }

  /** All versions of a function, newest first. */
  async versions(name: string, options: CallOptions = {}): Promise<readonly FunctionVersion[]> {
    return (await this.#http.json<{ versions: FunctionVersion[] }>(`${functionPath(name)}/versions`, common(options)))
      .versions;
  }

  /** Removes a function; `now` cancels its invocations. Returns the removed versions that drain: they still have unfinished invocations. */
  async removeFunction(
    name: string,
    options: CallOptions & { readonly now?: boolean } = {},
  ): Promise<readonly Draining[]> {
    return this.#remove(functionPath(name), options);
  }

  /** Removes a version that no alias serves. */
  async removeVersion(
    name: string,
    version: string,
    options: CallOptions & { readonly now?: boolean } = {},
  ): Promise<readonly Draining[]> {
    return this.#remove(`${functionPath(name)}/versions/${encodeURIComponent(version)}`, options);
  }

  /** The removed versions of a function that still drain. */
  async draining(name: string, options: CallOptions = {}): Promise<readonly Draining[]> {
    return (await this.#http.json<{ draining: Draining[] }>(`${functionPath(name)}/draining`, common(options)))
      .draining;
  }

  /** Aliases and tags of a function, `live` first. */
  async aliases(name: string, options: CallOptions = {}): Promise<readonly Alias[]> {
    return (await this.#http.json<{ aliases: Alias[] }>(`${functionPath(name)}/aliases`, common(options))).aliases;
  }

  /** States of an alias, newest first, the present one included. */
  async aliasHistory(name: string, alias: string, options: CallOptions = {}): Promise<readonly Alias[]> {
    return (await this.#http.json<{ history: Alias[] }>(`${aliasPath(name, alias)}/history`, common(options))).history;
  }

  /** Sets all shares of an alias at once. */
  async setAlias(name: string, alias: string, change: SetAlias, options: CallOptions = {}): Promise<Alias> {
    return this.#http.json(aliasPath(name, alias), withBody(options, 'PUT', change));
  }

  async removeAlias(name: string, alias: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(aliasPath(name, alias), { ...common(options), method: 'DELETE' });
  }

  /** Restores an earlier state of an alias; returns the changes. */
  async rollback(name: string, request: RollbackRequest = {}, options: CallOptions = {}): Promise<Rollback> {
    return this.#http.json(`${functionPath(name)}/rollback`, withBody(options, 'POST', request));
  }

  /** Lifts the quarantine of a function's versions; returns the versions that were quarantined. */
  async liftQuarantine(name: string, options: CallOptions = {}): Promise<readonly string[]> {
    const path = `${functionPath(name)}/quarantine`;
    return (await this.#http.json<{ lifted: string[] }>(path, { ...common(options), method: 'DELETE' })).lifted;
  }

  async #remove(path: string, options: CallOptions & { readonly now?: boolean }): Promise<readonly Draining[]> {
    const query = options.now === true ? '?now=true' : '';
    const response = await this.#http.request(`${path}${query}`, { ...common(options), method: 'DELETE' });
    if (response.status === 204) return [];
    return (await this.#http.parsed<{ draining: Draining[] }>(response, options.signal)).draining;
  }
}

export function functionPath(reference: string): string {
  return `/v1/functions/${encodeURIComponent(reference)}`;
}

function aliasPath(name: string, alias: string): string {
  return `${functionPath(name)}/aliases/${encodeURIComponent(alias)}`;
}

function deployPath(name: string, { alias, tag, message, onlyNew }: DeployTarget, dryRun = false): string {
  const query = new URLSearchParams();
  if (alias !== undefined) query.set('alias', alias ?? NO_ALIAS);
  if (tag !== undefined) query.set('tag', tag);
  if (message !== undefined) query.set('message', message);
  if (onlyNew === true) query.set('only_new', 'true');
  if (dryRun) query.set('dry_run', 'true');
  return `${functionPath(name)}${query.size === 0 ? '' : `?${query}`}`;
}

function upload(manifest: object, component: Uint8Array<ArrayBuffer>, options: CallOptions) {
  const body = new FormData();
  body.set('manifest', new Blob([JSON.stringify(manifest)], { type: 'application/json' }), 'pie.json');
  body.set('component', new Blob([component], { type: 'application/wasm' }), 'component.wasm');
  return { ...common(options), method: 'PUT', body, patient: true };
}
