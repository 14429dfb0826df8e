import type { Schedule } from '../app/resources/schedules.ts';
import type { ScheduleSettings } from '../app/routes/schedules.ts';
import { type CallOptions, common, withBody } from './calls.ts';
import type { Http } from './http.ts';

export type { ScheduleSettings };

/** Schedules of the key's tenant. */
export class SchedulesClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists schedules by name. */
  async list(options: CallOptions = {}): Promise<readonly Schedule[]> {
    return (await this.#http.json<{ schedules: Schedule[] }>('/v1/schedules', common(options))).schedules;
  }

  /** Stores a schedule, or replaces the one of its name. */
  async put(name: string, settings: ScheduleSettings, options: CallOptions = {}): Promise<Schedule> {
    return this.#http.json(schedulePath(name), withBody(options, 'PUT', settings));
  }

  /** Resumes a suspended schedule, and leaves any other one as it is. */
  async resume(name: string, options: CallOptions = {}): Promise<Schedule> {
    return this.#http.json(`${schedulePath(name)}/resume`, { ...common(options), method: 'POST' });
  }

  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(schedulePath(name), { ...common(options), method: 'DELETE' });
  }
}

function schedulePath(name: string): string {
  return `/v1/schedules/${encodeURIComponent(name)}`;
}
