// Adds the agent's token to each request, for clients that can send none: the suite's.
// token_proxy.mjs URL TOKEN: prints the URL to use, and runs until it is ended.
import http from 'node:http';

const [target, token] = [new URL(process.argv[2]), process.argv[3]];
const server = http.createServer((request, response) => {
  const own = `:${server.address().port}`;
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  // The doors know the engine's own port; what else stands there is theirs to judge.
  for (const name of ['host', 'origin'])
    if (headers[name]) headers[name] = headers[name].replace(own, `:${target.port}`);
  const way = { hostname: target.hostname, port: target.port, path: request.url };
  const onward = http.request({ ...way, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  request.pipe(onward);
});
server.listen(0, '127.0.0.1', () =>
  console.log(`http://127.0.0.1:${server.address().port}${target.pathname}`));
