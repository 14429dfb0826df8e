import type { MinuteRow, QuotaChange, QuotaFilter, QuotaStatus, UsageQuery, UsageRow } from '../app/schemas/quotas.ts';
import { type CallOptions, common, queryOf, withBody, withQuery } from './calls.ts';
import type { Http } from './http.ts';

export interface QuotaQuery extends CallOptions, QuotaFilter {}

/** By default, usage of the key's own tenant by day. */
export interface UsageOptions extends CallOptions, Partial<UsageQuery> {}

/** Limits, their use, and usage. */
export class QuotasClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists every limit in force. */
  async list(query: QuotaQuery = {}): Promise<readonly QuotaStatus[]> {
    const path = withQuery('/v1/quotas', queryOf(query));
    return (await this.#http.json<{ quotas: QuotaStatus[] }>(path, common(query))).quotas;
  }

  /** Sets a limit. Returns the limit that is then in force, or null when there is none. Operators only. */
  async set(change: QuotaChange, options: CallOptions & { readonly tenant?: string | undefined } = {}) {
    const { tenant } = options;
    const body = { ...change, ...(tenant === undefined ? {} : { tenant }) };
    const path = '/v1/quotas';
    return (await this.#http.json<{ quota: QuotaStatus | null }>(path, withBody(options, 'PUT', body))).quota;
  }

  async usage(options: UsageOptions = {}): Promise<readonly UsageRow[]> {
    return (await this.#http.json<{ usage: UsageRow[] }>(usagePath(options), common(options))).usage;
  }

  /** The usage as CSV with a header line. */
  async usageCsv(options: UsageOptions = {}): Promise<string> {
    const { headers, ...otherOptions } = common(options);
    const csvRequest = { ...otherOptions, headers: { ...headers, accept: 'text/csv' } };
    const response = await this.#http.request(usagePath(options), csvRequest);
    return this.#http.text(response, otherOptions.signal);
  }

  /** Per-minute numbers of a tenant, oldest first, for at most 180 minutes. */
  async minutes(minutes: number, options: CallOptions & { readonly tenant?: string | undefined } = {}) {
    const path = withQuery('/v1/usage/minutes', { minutes, tenant: options.tenant });
    return (await this.#http.json<{ minutes: MinuteRow[] }>(path, common(options))).minutes;
  }
}

function usagePath({ perFunction, ...options }: UsageOptions): string {
  return withQuery('/v1/usage', { ...queryOf(options), 'per-function': perFunction === true ? 'true' : undefined });
}
