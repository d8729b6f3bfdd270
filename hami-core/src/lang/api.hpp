// The room `lang`. The expression language, and the parameters that classes declare.
#pragma once

#include "lang/expression.hpp"
#include "lang/params.hpp"
#include "lang/paths.hpp"
#include "lang/units.hpp"
