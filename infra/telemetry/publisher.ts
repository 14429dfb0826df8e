import type { Meter } from '@opentelemetry/api';
import type { Logger } from '../log.ts';
import type { ProcessFamilies } from './prometheus.ts';
import { PUBLISH_INTERVAL_MS } from './settings.ts';

export interface PublisherOptions {
  readonly meter: Meter;
  /** Metrics to publish: those of this process and of the processes that it reports for. */
  readonly snapshots: () => Promise<readonly ProcessFamilies[]>;
  /** Stores one process's metrics as JSON for the gateway. */
  readonly publish: (process: string, text: string) => Promise<void>;
  /** Sends a PING to Redis; the publisher records its round-trip time. */
  readonly ping: () => Promise<void>;
  /** Gets the first failure to publish, and another one only after a success in between. */
  readonly log: Logger;
}

const ROUND_TRIP_BOUNDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1];

/** Publishes metrics at once and then every five seconds, until the caller calls the returned function. */
export function publishMetrics(options: PublisherOptions): () => void {
  const roundTrip = options.meter.createHistogram('pie.redis.round_trip', {
    unit: 's',
    description: 'Time of a PING.',
    advice: { explicitBucketBoundaries: ROUND_TRIP_BOUNDS },
  });
  let isFailing = false;
  let isPublishing = false;
  const publishAll = async (): Promise<void> => {
    // The last round may still run, because Redis may be away for longer than the interval.
    if (isPublishing) return;
    isPublishing = true;
    try {
      const startMs = performance.now();
      await options.ping();
      roundTrip.record((performance.now() - startMs) / 1000);
      for (const { process, families } of await options.snapshots())
        await options.publish(process, JSON.stringify(families));
      isFailing = false;
    } catch (error) {
      if (!isFailing) options.log.warn({ error }, 'the metrics could not be published');
      isFailing = true;
    } finally {
      isPublishing = false;
    }
  };
  const timer = setInterval(() => void publishAll(), PUBLISH_INTERVAL_MS);
  timer.unref();
  void publishAll();
  return () => clearInterval(timer);
}
