import type { Call } from '../app/control.ts';
import type { MinuteRow, QuotaChange, QuotaStatus, Quotas, UsageQuery, UsageRow } from '../app/resources/quotas.ts';
import { type ClientOf, options, translating } from './origin.ts';

/** Limits and usage by HTTP: the origin stores them, and decides about access. */
export class OriginQuotas implements Quotas {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]> {
    return translating(() => this.#client(call).quotas.list({ ...options(call), tenant, function: fn }));
  }

  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null> {
    return translating(() => this.#client(call).quotas.set(change, { ...options(call), tenant }));
  }

  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]> {
    return translating(() => this.#client(call).quotas.usage({ ...options(call), ...query }));
  }

  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]> {
    return translating(() => this.#client(call).quotas.minutes(minutes, { ...options(call), tenant }));
  }
}
