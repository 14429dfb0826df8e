import type { Call } from '../app/control.ts';
import { exactJson } from '../app/http/exact-json.ts';
import type { NewSchedule, Schedule, Schedules } from '../app/resources/schedules.ts';
import { type ClientOf, isFound, options, orNull, translating } from './origin.ts';

/** Schedules by HTTP: the origin stores them and makes their invocations. */
export class OriginSchedules implements Schedules {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly Schedule[]> {
    return translating(() => this.#client(call).schedules.list(options(call)));
  }

  put(call: Call, { name, function: fn, input, timing }: NewSchedule): Promise<Schedule | null> {
    // The origin checks the input against the version that it finds.
    const reference = fn.version === undefined ? fn.name : `${fn.name}@${fn.version}`;
    const settings = { function: reference, input: exactJson(input), ...timing };
    return orNull('unknown-function', () => this.#client(call).schedules.put(name, settings, options(call)));
  }

  remove(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-schedule', () => this.#client(call).schedules.remove(name, options(call)));
  }
}
