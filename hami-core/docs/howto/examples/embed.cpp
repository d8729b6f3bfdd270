// Loads a native plugin from a path and runs a pipe: embed PLUGIN.so EXPRESSION NUMBER…
#include <hami/embed.hpp>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s PLUGIN.so EXPRESSION NUMBER…\n", argv[0]);
    return 2;
  }
  try {
    hami::load_plugin(argv[1]);
    const hami::Pipe pipe(argv[2]);

    // One request after the other: each call waits for its result.
    for (int i = 3; i < argc; ++i)
      std::printf("%lld\n", static_cast<long long>(pipe({{"data", std::stoll(argv[i])}}).at("result").as_int()));

    // All requests at once: `submit` returns a future.
    std::vector<std::future<hami::Keys>> results;
    for (int i = 3; i < argc; ++i) results.push_back(pipe.submit({{"data", std::stoll(argv[i])}}));
    long long sum = 0;
    for (std::future<hami::Keys>& result : results) sum += result.get().at("result").as_int();
    std::printf("sum %lld\n", sum);
  } catch (const hami::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
