import { describeHttp, SUITE_HEARTBEAT_MS, SUITE_LIMITS, SUITE_ORIGIN } from '../testing/http/suite.ts';
import { startWorker } from '../testing/miniflare.ts';
import { GatewayPlatform } from '../testing/platform.ts';

describeHttp('the HTTP API in workerd, on a Node origin', async () => {
  const platform = await GatewayPlatform.start({ serve: { limits: SUITE_LIMITS, heartbeatMs: SUITE_HEARTBEAT_MS } });
  const worker = await startWorker(platform.url, { CORS_ORIGINS: `http://localhost:5173, ${SUITE_ORIGIN}` });
  return {
    url: worker.url,
    platform,
    async stop() {
      await worker.stop();
      await platform.stop();
    },
  };
});
