import { describeHttp, SUITE_HEARTBEAT_MS, SUITE_LIMITS, SUITE_ORIGIN } from '../testing/http/suite.ts';
import { GatewayPlatform } from '../testing/platform.ts';

describeHttp('the HTTP API on Node', async () => {
  const platform = await GatewayPlatform.start({
    serve: { limits: SUITE_LIMITS, heartbeatMs: SUITE_HEARTBEAT_MS, corsOrigins: [SUITE_ORIGIN] },
  });
  return { url: platform.url, platform, stop: () => platform.stop() };
});
