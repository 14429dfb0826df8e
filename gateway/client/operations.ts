import type {
  GpuHostChange,
  GpuHostState,
  InvocationPage,
  InvocationQuery,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  PlatformLoad,
} from '../app/resources/operations.ts';
import { type CallOptions, common, queryOf, withBody, withQuery } from './calls.ts';
import type { Http } from './http.ts';

/** Without a limit, a page has 50 invocations. */
export interface InvocationListQuery extends CallOptions, Partial<InvocationQuery> {}

/** Lists of invocations, load, GPU hosts, machines, join tokens and the webhook secret. */
export class OperationsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** A page of invocations, newest first, without their outputs. More pages follow while `cursor` is not null. */
  async invocations(query: InvocationListQuery = {}): Promise<InvocationPage> {
    const status = [query.status ?? []].flat().join() || undefined;
    return this.#http.json(withQuery('/v1/invocations', { ...queryOf(query), status }), common(query));
  }

  /** Load of the platform; operators only. */
  async load(options: CallOptions = {}): Promise<PlatformLoad> {
    return this.#http.json('/v1/load', common(options));
  }

  /**
   * Drains a GPU host, or ends its drain; operators only. Resolves when all runtimes that use the host know of the change, at the latest after
   * the time of a runtime's lease.
   */
  async changeGpuHost(name: string, change: GpuHostChange, options: CallOptions = {}): Promise<GpuHostState> {
    return this.#http.json(`/v1/gpu-hosts/${encodeURIComponent(name)}`, withBody(options, 'PATCH', change));
  }

  /** Drains a machine with its GPU hosts, or ends their drain; operators only. Resolves like {@link changeGpuHost}. */
  async changeMachine(name: string, change: MachineChange, options: CallOptions = {}): Promise<MachineState> {
    return this.#http.json(`/v1/machines/${encodeURIComponent(name)}`, withBody(options, 'PATCH', change));
  }

  /** Makes a token with which one machine may join; operators only. */
  async createJoinToken(request: Partial<JoinTokenRequest> = {}, options: CallOptions = {}): Promise<JoinToken> {
    return this.#http.json('/v1/machines/tokens', withBody(options, 'POST', request));
  }

  /** Removes a machine for good; operators only. */
  async removeMachine(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(`/v1/machines/${encodeURIComponent(name)}`, { ...common(options), method: 'DELETE' });
  }

  /** The secret that signs the tenant's webhooks; `rotate` makes a new one. */
  async webhookSecret(options: CallOptions & { readonly rotate?: boolean } = {}): Promise<string> {
    const method = options.rotate === true ? 'POST' : 'GET';
    return (await this.#http.json<{ secret: string }>('/v1/webhooks/secret', { ...common(options), method })).secret;
  }
}
