// Loads a native plugin by its path and runs a pipe: embed PLUGIN.so EXPRESSION NUMBER…
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

    // One after the other, each call waiting for its result …
    for (int i = 3; i < argc; ++i)
      std::printf("%lld\n", static_cast<long long>(pipe({{"data", std::stoll(argv[i])}}).at("result").as_int()));

    // … or all at once.
    std::vector<std::future<hami::Keys>> awaitables;
    for (int i = 3; i < argc; ++i) awaitables.push_back(pipe.submit({{"data", std::stoll(argv[i])}}));
    long long sum = 0;
    for (std::future<hami::Keys>& answer : awaitables) sum += answer.get().at("result").as_int();
    std::printf("sum %lld\n", sum);
  } catch (const hami::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
