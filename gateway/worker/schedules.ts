import type { Call } from '../app/control.ts';
import { exactJson } from '../app/http/exact-json.ts';
import type { NewSchedule, Schedule, Schedules, StoredSchedule } from '../app/resources/schedules.ts';
import { type ClientOf, isFound, options, orNull, translating } from './origin.ts';

/** Schedules at the edge. Each call becomes an HTTP request to the origin (a Node gateway), which stores the schedules and submits invocations. */
export class OriginSchedules implements Schedules {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly StoredSchedule[]> {
    return translating(async () => (await this.#client(call).schedules.list(options(call))).map(toStored));
  }

  put(call: Call, { name, function: fn, input, timing }: NewSchedule): Promise<StoredSchedule | null> {
    // No check of the input here: the origin resolves the reference to a version, and checks the input against that version.
    const reference = fn.version === undefined ? fn.name : `${fn.name}@${fn.version}`;
    const settings = { function: reference, input: exactJson(input), ...timing };
    return orNull('unknown-function', async () =>
      toStored(await this.#client(call).schedules.put(name, settings, options(call))),
    );
  }

  resume(call: Call, name: string): Promise<StoredSchedule | null> {
    return orNull('unknown-schedule', async () =>
      toStored(await this.#client(call).schedules.resume(name, options(call))),
    );
  }

  remove(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-schedule', () => this.#client(call).schedules.remove(name, options(call)));
  }
}

const toStored = ({ input, ...schedule }: Schedule): StoredSchedule => ({
  ...schedule,
  inputText: JSON.stringify(input),
});
